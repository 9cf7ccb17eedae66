#!/usr/bin/env bash
# Before `make test`: as root on Debian, installs what is missing of a C compiler (for the race detector and for one
# SQLite driver) and the database servers. Elsewhere it stops without a compiler; a missing server is reported by the
# first test that needs it, which knows all the places to look in.
set -euo pipefail

has_compiler() { # a compiler without the C library's headers does not help
	echo '#include <stdlib.h>
int main(void) { return 0; }' | "${CC:-cc}" -x c -o /dev/null - 2>/dev/null
}

has_postgres() {
	[ -n "${RECADO_TEST_POSTGRES:-}" ] || command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

has_mariadb() {
	[ -n "${RECADO_TEST_MARIADB:-}" ] || command -v mariadb-install-db >/dev/null
}

missing=()
has_compiler || missing+=(gcc libc6-dev)
has_postgres || missing+=(postgresql)
has_mariadb || missing+=(mariadb-server-core mariadb-client-core) # mariadb-server would also run one as a service

if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then
	echo "Installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

has_compiler || {
	echo >&2 'make test needs a C compiler and the C library headers (Debian: gcc libc6-dev; macOS: xcode-select --install).'
	echo >&2 'make test-quick does without.'
	exit 1
}
