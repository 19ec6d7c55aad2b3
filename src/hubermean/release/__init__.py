"""The release path: public decisions, the charge, the data, and what may be published."""
