#!/usr/bin/env bash
# An image that KubeRay can run, without any registry: Debian packages by debootstrap, Python packages by pip.
#   sudo cluster/images/build.sh cpu [NAME:TAG]        tpu, gpu, env, ds1000 likewise; needs debootstrap, and docker to import it
#   sudo cluster/images/build.sh cpu --tar FILE        the root file system alone
# apt and pip are told how this machine reaches its sources; nothing of that stays in the image. Code and Python packages are those
# of the commit. What differs between images is in their folders: debian.txt, python.txt and, where there is one, env.txt.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
repository="$(readlink -f "$here/../..")"
kind="${1:-}"
refused() { echo "build.sh: $1" >&2; exit "${2:-1}"; }
[[ -f "$here/$kind/python.txt" ]] || refused "image '$kind': expected cpu, tpu, gpu, env or ds1000" 2
[[ "${2:-}" != --tar || -n "${3:-}" ]] || refused "--tar wants the file to write: build.sh $kind --tar $kind.tar" 2
((EUID == 0)) || refused "debootstrap needs root: sudo $0 $*"
command -v debootstrap >/dev/null || refused "apt-get install -y debootstrap"
# What would otherwise be found out after a quarter of an hour.
commit="$(git -C "$repository" rev-parse --verify --quiet HEAD)" ||
  refused "$repository is no checkout that root's git reads: clone it, or git config --global --add safe.directory $repository"
[[ "${2:-}" == --tar ]] || timeout 60 docker version >/dev/null 2>&1 ||
  refused "no Docker engine answers: start it, name it (sudo --preserve-env=DOCKER_HOST), or give --tar FILE"
# Mounts beneath the new root end with this process, however it ends.
[[ -n "${LEMUR_UNSHARED:-}" ]] || exec env LEMUR_UNSHARED=1 unshare --mount --propagation private bash "$0" "$@"

sources=(lemur_ray envs jobs cluster/images pyproject.toml requirements.lock requirements-buckets.lock)
[[ -z "$(git -C "$repository" status --porcelain -- "${sources[@]}")" ]] ||
  echo "build.sh: what is not committed is not in the image: its code is ${commit:0:12}" >&2
version="$(sed -n 's/^version = "\(.*\)"$/\1/p' "$repository/pyproject.toml")"
name="${2:-lemur-ray-$kind:$version}"
work="$(mktemp -d "${TMPDIR:-/var/tmp}/lemur-image-XXXXXX")"
root="$work/root"
unset TMPDIR # a folder of this machine, not of the new root
[[ "${PIP_FIND_LINKS:-}" != /* ]] || unset PIP_FIND_LINKS # likewise
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
. /etc/os-release
mirror="$(apt-get indextargets --format '$(SITE)|$(CODENAME)' 'Created-By: Packages' |
  awk -F'|' -v suite="$VERSION_CODENAME" '$2 == suite { print $1; exit }')"
[[ -n "$mirror" ]] || { echo "build.sh: apt has no source for $VERSION_CODENAME" >&2; exit 1; }

lists=("$here/cpu/debian.txt" "$here/$kind/debian.txt")
[[ "$kind" != env && "$kind" != ds1000 ]] || lists+=("$here/env/debian.txt" "$here/sandbox/packages.txt")
mapfile -t packages < <(sed 's/#.*//' "${lists[@]}" | tr -s ' \n' '\n' | grep . | sort -u)
began=$SECONDS
step() { echo "$1: $((SECONDS - began)) s, $(du -xsm "$root" | cut -f1) MB"; }

debootstrap --variant=minbase "$VERSION_CODENAME" "$root" "$mirror" >"$work/debootstrap.log" ||
  { tail -n 5 "$work/debootstrap.log" >&2; exit 1; }
mapfile -t suites < <(apt-get indextargets --format '$(SITE)|$(CODENAME)' 'Created-By: Packages' |
  awk -F'|' -v suite="$VERSION_CODENAME" '$2 ~ "^" suite "-(security|updates)$" { print "deb " $1 " " $2 " main" }' | sort -u)
((${#suites[@]} == 0)) || printf '%s\n' "${suites[@]}" >>"$root/etc/apt/sources.list"
for file in apt.conf apt.conf.d; do [[ ! -e "/etc/apt/$file" ]] || cp -r "/etc/apt/$file" "$root/etc/apt/"; done
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
cp /etc/resolv.conf "$root/etc/"
mkdir -p "$root/etc/ssl/certs" && cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" # sources may be https
export DEBIAN_FRONTEND=noninteractive
chroot "$root" apt-get -qq update
{ chroot "$root" apt-get -qq -y upgrade &&
  chroot "$root" apt-get -qq -y --no-install-recommends install "${packages[@]}"; } >"$work/apt.log" 2>&1 ||
  { tail -n 5 "$work/apt.log" >&2; exit 1; }
step "Debian packages"

mkdir -p "$root/app"
git -C "$repository" archive "$commit" "${sources[@]}" | tar -x -C "$root/app"
mkdir -p "$work/certs" && cp "$root/etc/ssl/certs/ca-certificates.crt" "$work/certs/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
# Folders of packages on this machine are not there in the new root.
{ pip config list 2>/dev/null || true; } | sed -n "s/^global\.\([a-z-]*\)='\(.*\)'$/\1 = \2/p" |
  sed -e '/^[a-z-]*\(url\|links\) = \(file:\|\/\)/d' -e '1i [global]' >"$root/etc/pip.conf"
chroot "$root" python3 -m venv /opt/lemur
chroot "$root" /opt/lemur/bin/pip install --quiet --no-cache-dir --no-compile --disable-pip-version-check \
  -r "/app/cluster/images/$kind/python.txt"
# Packages apart from the project's own, of versions that it has not.
[[ ! -f "$here/$kind/requirements.txt" ]] ||
  chroot "$root" /opt/lemur/bin/pip install --quiet --no-cache-dir --no-compile --disable-pip-version-check \
    --target "/opt/$kind" -r "/app/cluster/images/$kind/requirements.txt" \
    -c "/app/cluster/images/$kind/constraints.txt"
step "Python packages"

# What runs never reads: tests of packages, headers, the installer, Ray for Java.
site="$(echo "$root"/opt/lemur/lib/python3*/site-packages)"
find "$site" -depth -type d \( -name tests -o -name test \) -exec rm -rf {} +
rm -rf "$site"/{pyarrow,numpy/_core,ray}/include "$site"/ray/jars "$site"/pip "$site"/pip-* "$root"/usr/lib/python3*/ensurepip
# DS-1000's torch of PyPI is the one for CUDA: on a processor nothing reads its headers, cuDNN's kernels and Triton.
rm -rf "$root/opt/$kind"/{triton,triton-*,torch/include,tensorflow/include,nvidia/*/include,nvidia/cudnn/lib/libcudnn_*}
chroot "$root" useradd --create-home --uid 1000 --gid 100 --shell /bin/bash ray
# A login shell (kubectl exec -- bash -l, KubeRay with ENABLE_LOGIN_SHELL) forgets the image's PATH in /etc/profile.
echo 'export PATH=/opt/lemur/bin:$PATH' >"$root/etc/profile.d/lemur.sh"
# Compiled here: uid 1000 may not write there, and every worker would compile what it imports again.
chroot "$root" /opt/lemur/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
  /opt/lemur/lib /app $([[ ! -d "$root/opt/$kind" ]] || echo "/opt/$kind") || true
cp "$work/certs/ca-certificates.crt" "$root/etc/ssl/certs/"
rm -rf "$root"/etc/{pip.conf,resolv.conf,hostname} "$root"/etc/apt/{apt.conf,apt.conf.d,sources.list,sources.list.d} \
  "$root"/var/cache/apt "$root"/var/lib/apt/lists "$root"/var/log/* "$root"/usr/share/{doc,man,locale} "$root"/tmp/*
umount "$root/proc"
step "the image"

if [[ "$name" == --tar ]]; then
  tar -C "$root" --numeric-owner -cf "${3:?--tar FILE}" .
else
  more=()
  [[ ! -f "$here/$kind/env.txt" ]] || mapfile -t more < <(sed -n 's/^\([A-Z_]*=.*\)$/ENV \1/p' "$here/$kind/env.txt")
  tar -C "$root" --numeric-owner -c . | docker import "${more[@]/#/--change=}" \
    -c "LABEL org.opencontainers.image.version=$version org.opencontainers.image.revision=$commit" \
    -c 'ENV PATH=/opt/lemur/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    -c 'ENV PYTHONPATH=/app PYTHONUNBUFFERED=1 RAY_USAGE_STATS_ENABLED=0 HOME=/home/ray' \
    -c 'USER 1000:100' -c 'WORKDIR /app' - "$name"
  echo "built $name in $((SECONDS - began)) s: $(docker image inspect --format '{{.Size}}' "$name") bytes"
fi
