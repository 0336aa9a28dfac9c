"""External data sets: addresses, licences, fetching and verification. Knows no benchmark."""
