"""Gymnasium environments of text in, text out; importing this package registers their ids and nothing else.

``gymnasium.make("envs:lemur/ALFWorldText-v0")`` imports the module before the colon by itself, in any process.
"""

import gymnasium

ENVIRONMENTS = {
    "lemur/ALFWorldText-v0": "envs.alfworld.env:ALFWorldTextEnv",
    "lemur/InterCodeBash-v0": "envs.intercode.shell.bash_env:InterCodeBashEnv",
    "lemur/InterCodeCTF-v0": "envs.intercode.shell.ctf_env:InterCodeCTFEnv",
    "lemur/InterCodePython-v0": "envs.intercode.python_env:InterCodePythonEnv",
    "lemur/InterCodeSQL-v0": "envs.intercode.sql.sql_env:InterCodeSQLEnv",
    "lemur/MINT-v0": "envs.mint.mint_env:MintEnv",
}

for _id, _entry_point in ENVIRONMENTS.items():
    gymnasium.register(id=_id, entry_point=_entry_point)
