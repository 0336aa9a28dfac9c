"""Programs that InterCode's tasks call, each with its Debian package.

bubblewrap uses this machine's programs; the image of the Docker sandbox has all of these but crontab."""

from lemur_ray.doctor.machine import Check, Machine

BASH = {
    "cal": "ncal", "column": "bsdmainutils", "convert": "imagemagick", "cpio": "cpio", "crontab": "cron",
    "curl": "curl", "dig": "dnsutils", "git": "git", "ifconfig": "net-tools", "jq": "jq", "ping": "iputils-ping",
    "pstree": "psmisc", "python3": "python3", "tree": "tree",
}  # fmt: skip
"""Program -> Debian package, for upstream's image of the Bash tasks (princeton-nlp/intercode c3e46d8)."""
CTF = {
    "curl": "curl", "file": "file", "gcc": "gcc", "gdb": "gdb", "mmls": "sleuthkit", "nc": "netcat-openbsd",
    "objdump": "binutils", "openssl": "openssl", "pdftotext": "poppler-utils", "python3": "python3",
    "unzip": "unzip", "wget": "wget", "xxd": "xxd",
}  # fmt: skip
"""Program -> Debian package, for upstream's image of the CTF tasks."""
CTF_BESIDES = {"exiftool": "libimage-exiftool-perl", "tshark": "tshark"}
"""Programs that the CTF challenges also need and upstream's image lacks."""


def sandbox_tools(machine: Machine) -> Check:
    """Check which programs of InterCode's Bash and CTF tasks are not on this machine's PATH, and so in no bubblewrap
    sandbox. A missing one is a warning, with the apt-get command that installs it."""
    absent = {name: package for name, package in {**BASH, **CTF, **CTF_BESIDES}.items() if not machine.which(name)}
    if not absent:
        return Check("sandbox tools", "ok", "all that InterCode's Bash and CTF tasks call")
    tasks = " and ".join(
        f"{kind} ({', '.join(sorted(set(names) & set(absent)))})"
        for kind, names in (("Bash", BASH), ("CTF", {**CTF, **CTF_BESIDES}))
        if set(names) & set(absent)
    )
    detail = f"under bubblewrap InterCode's tasks are played without some: {tasks}"
    return Check("sandbox tools", "warn", detail, f"apt-get install -y {' '.join(sorted(set(absent.values())))}")
