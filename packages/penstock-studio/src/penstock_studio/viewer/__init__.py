"""A viewer of datasets in the browser: a thin server over datasets, and the pages that it serves."""
