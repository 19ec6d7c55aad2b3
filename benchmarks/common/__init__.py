"""What benchmarks share: files, interleaved runs, pages."""
