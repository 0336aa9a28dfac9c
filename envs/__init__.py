"""Text-in, text-out Gymnasium environments. Importing this package registers their ids and does nothing else.

``gymnasium.make("envs:lemur/ALFWorldText-v0")`` imports the module before the colon by itself, in any process."""

import gymnasium

ENVIRONMENTS = {
    "lemur/ALFWorldText-v0": "envs.alfworld.env:ALFWorldTextEnv",
    "lemur/BFCL-v0": "envs.language.bfcl.multi_turn_env:MultiTurnEnv",
    "lemur/Foreign-v0": "envs.foreign.gym_env:ForeignEnv",
    "lemur/Harbor-v0": "envs.foreign.harbor.env:HarborEnv",
    "lemur/InterCodeBash-v0": "envs.intercode.shell.bash_env:InterCodeBashEnv",
    "lemur/InterCodeCTF-v0": "envs.intercode.shell.ctf_env:InterCodeCTFEnv",
    "lemur/InterCodePython-v0": "envs.intercode.python_env:InterCodePythonEnv",
    "lemur/InterCodeSQL-v0": "envs.intercode.sql.sql_env:InterCodeSQLEnv",
    "lemur/MINT-v0": "envs.mint.mint_env:MintEnv",
    "lemur/Question-v0": "envs.question.env:QuestionEnv",
    "lemur/RoboCodeGen-v0": "envs.programs.robocodegen.env:RobotCodeEnv",
    "lemur/TauBench-v0": "envs.language.tau_bench.env:TauBenchEnv",
    "lemur/WebArena-v0": "envs.webarena.env:WebEnv",
    "lemur/WebArenaStandin-v0": "envs.webarena.sites.standin_env:StandinEnv",
}

for _id, _entry_point in ENVIRONMENTS.items():
    gymnasium.register(id=_id, entry_point=_entry_point)
