"""What commands show: tables, pages, plots, JSON and progress."""
