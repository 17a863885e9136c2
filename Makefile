# Thin: the work is done by Meson, Ninja and the scripts in tools/. Every target may be run again and again.
.PHONY: help build up down check bench soak install deb purge lint packages
help:
	@echo 'sudo make up       installs what is missing, builds, starts the cloud, launches a first guest'
	@echo 'sudo make down     stops guests and services, keeps the data'
	@echo 'sudo make purge    undoes make up for ever: lists what goes, and asks'
	@echo 'sudo make check    builds with sanitizers and runs every test'
	@echo 'make build         only builds (build/)'
	@echo 'make lint          checks edges of rooms, banned calls, formatting'
	@echo 'make bench         figures of this machine; make soak: long tests, clang, arm64'
	@echo 'make deb           builds a Debian package (build-deb/)'
	@echo 'sudo make install  installs programs, units and documents'
packages:
	@tools/packages.sh install
build:
	@tools/build.sh
up:
	@tools/up.sh
down:
	@tools/down.sh
check:
	@tools/check.sh
bench:
	@tools/bench.sh
soak:
	@tools/soak.sh
install:
	@tools/install.sh
purge:
	@tools/purge.sh
deb:
	@tools/deb.sh
lint:
	@tools/lint.sh
