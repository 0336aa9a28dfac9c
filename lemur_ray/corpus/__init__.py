"""From raw code and text to packed token rows on disk. Ray only in build.py; knows no plan, model or trainer."""
