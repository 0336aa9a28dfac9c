"""Files and folders for other hosts: named by their content, kept where every host reads, unpacked once per host."""
