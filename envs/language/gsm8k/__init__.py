"""GSM8K: word problems of grade school mathematics."""
