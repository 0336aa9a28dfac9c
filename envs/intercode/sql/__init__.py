"""InterCode-SQL: its environment, the engines that run queries, Spider's databases and the sample one."""
