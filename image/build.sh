#!/usr/bin/env bash
# Builds the container image as an OCI archive: image/build.sh phalanx.oci.tar [TAG]
#
# From nothing but Debian's packages (a machine with Debian 12 and apt) and the wheels of image/requirements.txt, whose
# hashes are checked: no shell, no package manager, not root. Wants buildah and Python 3.11. Only files of the
# repository decide what is in it, and SOURCE_DATE_EPOCH when: the commit's time. Exits with 75 where packages or wheels
# cannot be fetched.
set -euo pipefail
archive=$(realpath -m "${1:?usage: image/build.sh ARCHIVE [TAG]}")
tag=${2:-phalanx:0.1.0}
cd "$(dirname "$0")/.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root" "$work/packages" "$work/wheel"

echo "image: Debian's packages"
packages=(ca-certificates libc6 libgcc-s1 libstdc++6 zlib1g libbz2-1.0 liblzma5 libcrypt1 libexpat1 libffi8
  libssl3 libuuid1 libpython3.11-minimal libpython3.11-stdlib python3.11-minimal netbase)
(cd "$work/packages" && apt-get download --quiet=2 "${packages[@]}" 2> "$work/apt.log") || { cat "$work/apt.log"; exit 75; }
for package in "$work"/packages/*.deb; do dpkg-deb --extract "$package" "$root"; done
# What update-ca-certificates would gather.
mkdir -p "$root/etc/ssl/certs"
find "$root/usr/share/ca-certificates" -name '*.crt' | sort | xargs cat > "$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root"/usr/share/{doc,man,locale,lintian,bug,ca-certificates} "$root"/usr/lib/python3.11/{test,idlelib,lib2to3,pydoc_data,ensurepip,distutils,sqlite3} \
  "$root"/usr/lib/python3.11/lib-dynload/_codecs_* "$root"/usr/lib/*/gconv

echo "image: Phalanx and what it imports"
site=$root/opt/phalanx
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/wheel" .
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes \
  --only-binary :all: --python-version 3.11 --implementation cp --target "$site" --requirement image/requirements.txt || exit 75
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$site" "$work"/wheel/*.whl
# Tests and headers are for developers. (The embedded cluster is for laptops, and another distribution: packages/local.)
rm -rf "$site"/bin "$site"/numpy/{f2py,_core/include,doc} "$site"/numpy.libs/*gfortran*.orig
find "$site" -type d \( -name tests -o -name testing -path '*/numpy/*' \) -not -path '*/numpy/testing' -prune -exec rm -rf {} +
rm -f "$site"/cel_expr_python/ext/ext_{proto,encoders}.*  # nobody imports them (cluster/dra/expressions.py)
find "$site" -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.h' -o -name '*.c' \) -delete
rm -f "$site"/numpy/_core/_{umath_tests,rational_tests,operand_flag_tests,struct_ufunc_tests,multiarray_tests}.*
# Symbols are for debuggers. (Libraries in *.libs were patched after linking, which strip does not survive.)
find "$site" -name '*.so' -not -path '*.libs/*' -exec strip --strip-unneeded {} +
# With hashes instead of times, so that the same files make the same bytes.
"$python" -m compileall -q -j 2 --invalidation-mode unchecked-hash "$site" "$root/usr/lib/python3.11" || true

echo "phalanx:x:65532:65532:phalanx:/tmp:/sbin/nologin" > "$root/etc/passwd"
echo "phalanx:x:65532:" > "$root/etc/group"
mkdir -p -m 1777 "$root/tmp"

echo "image: the archive"
if ! command -v buildah > /dev/null; then
  command -v docker > /dev/null && docker info > /dev/null 2>&1 || { echo "image: neither buildah nor a docker daemon"; exit 75; }
  find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
  tar --create --sort=name --owner=0 --group=0 --numeric-owner --directory "$root" . | docker import --change 'USER 65532:65532' \
    --change 'ENV PYTHONPATH=/opt/phalanx PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' \
    --change 'ENTRYPOINT ["/usr/bin/python3.11", "-m", "phalanx.cli"]' --change 'CMD ["--help"]' --change 'WORKDIR /' \
    --change 'LABEL org.opencontainers.image.title=phalanx org.opencontainers.image.licenses=Apache-2.0' \
    --change "LABEL org.opencontainers.image.revision=$(git rev-parse HEAD)" - "$tag" > /dev/null
  docker save --output "$archive" "$tag"
  echo "image: $archive, $(du -h --apparent-size "$archive" | cut -f1)"
  exit 0
fi
container=$(buildah from scratch)
trap 'rm -rf "$work"; buildah rm "$container" > /dev/null' EXIT
buildah copy --quiet "$container" "$root" / > /dev/null
buildah config --user 65532:65532 --env PYTHONPATH=/opt/phalanx --env PYTHONDONTWRITEBYTECODE=1 --env PYTHONUNBUFFERED=1 \
  --env SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
  --entrypoint '["/usr/bin/python3.11", "-m", "phalanx.cli"]' --cmd --help --workingdir / \
  --label org.opencontainers.image.title=phalanx --label org.opencontainers.image.licenses=Apache-2.0 \
  --label "org.opencontainers.image.revision=$(git rev-parse HEAD)" "$container"
buildah commit --quiet --format oci --disable-compression=false --timestamp "$SOURCE_DATE_EPOCH" "$container" "oci-archive:$archive:$tag" > /dev/null
echo "image: $archive, $(du -h --apparent-size "$archive" | cut -f1)"
