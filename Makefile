# Build, show, test. Every target works on a fresh Debian 12 with Rust: `scripts/setup` installs what building
# needs; fuzz and coverage fetch their tools themselves; without a nightly compiler sanitize skips the parts
# that need one, and prints that.

# Absolute, so that the paths below are right whatever the caller's environment contains; override on the
# command line.
CARGO_TARGET_DIR := $(CURDIR)/target
export CARGO_TARGET_DIR
CARGO ?= cargo
SEEDS ?= 0..200
MUTANTS ?= 300
SCOPE ?= core
ORACLE_SETS ?= 200000
ORACLE_SEED ?= 1
FUZZ_SECONDS ?= 60
TCP_SEEDS ?= 20000
TCP_CONNECTIONS ?= 100000
SIM_TCP_SEEDS ?= 0..2000
SOAK_SECONDS ?= 1200
SOAK_SEED ?= 1
ATTACK_SECONDS ?= 20
PUNCTUAL := $(CARGO_TARGET_DIR)/release/punctual
MUTATIONS := $(CARGO) test --locked --release -p punctual-sim --features mutations --test mutations --
ORACLE := $(CARGO) test --locked --release -p punctual-analysis

.PHONY: orb-bench orb-clients orb-wire programs tcp-leaks idl-corpus packetdrill tcp-soak sim-tcp help setup build demo test mutations mutants oracle campaign fuzz sanitize coverage branches soak attack trials bench fmt lint clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## install what is missing (as root), or say what to install
	@scripts/setup

build: setup ## build target/release/punctual, target/release/punctuald and target/release/punctual-idl
	$(CARGO) build --locked --release -p punctual-cli -p punctual-daemon -p punctual-idl

demo: build ## show three hosts with a video, a control loop and a flood; writes target/demo/report.html
	$(PUNCTUAL) demo

test: build ## run all tests, short runs of every experiment (as root) and of the deliberate faults, then 200 simulated networks
	scripts/format --check
	scripts/check-client
	PUNCTUAL_TEST_WALL_CLOCK=1 PUNCTUAL_TEST_EXPERIMENTS=1 $(CARGO) test --locked --workspace --features punctual/tokio
	$(MUTATIONS) --short
	$(PUNCTUAL) sim --seeds $(SEEDS)

mutations: setup ## run each deliberate fault of the core, from the first seed on, until the checker that must see it does
	$(MUTATIONS)

mutants: setup ## draw MUTANTS mistakes by SEED, build them once behind a switch; tests, then the simulator, look for each; resumes
	$(CARGO) run --locked -p punctual-mutants -- --mutants $(MUTANTS) --scope $(SCOPE) $(if $(SEED),--seed $(SEED))

oracle: setup ## compare admission with independent searches: ORACLE_SETS stages in all release patterns, and buffers, by ORACLE_SEED
	$(ORACLE) --features mutations --test second_opinion -- --nocapture
	PUNCTUAL_ORACLE_SETS=$(ORACLE_SETS) PUNCTUAL_ORACLE_SEED=$(ORACLE_SEED) $(ORACLE) --test second_opinion --test occupancy \
		-- --nocapture

campaign: build ## simulate 10,000 networks with 10^8 messages; after Ctrl-C the same command resumes
	$(PUNCTUAL) sim --campaign $(CARGO_TARGET_DIR)/campaign.json --seeds 0..10000 --traffic-ms 2600

fuzz: setup ## run each fuzz target for FUZZ_SECONDS, guided by coverage
	scripts/fuzz $(FUZZ_SECONDS)

tcp-soak: setup ## send TCP streams over wires that lose up to 30 %, reorder, duplicate and corrupt, by TCP_SEEDS seeds (or a range FROM..TO); checks every byte
	PUNCTUAL_TCP_SEEDS=$(TCP_SEEDS) $(CARGO) test --locked --release -p punctual-tcp --test stream everything -- --nocapture

sim-tcp: build ## simulate the networks of SIM_TCP_SEEDS with TCP beside and over channels, and faults; checks bytes, budgets and bounds
	$(PUNCTUAL) sim --tcp --seeds $(SIM_TCP_SEEDS)

programs: setup ## install and run iperf3, curl and nginx, redis, ssh, rsync and sockperf over `punctual relay`, against kernels (as root)
	scripts/programs

tcp-leaks: setup ## open and end TCP_CONNECTIONS connections, through a daemon and embedded (as root): nothing may stay behind
	PUNCTUAL_TCP_CONNECTIONS=$(TCP_CONNECTIONS) $(CARGO) test --locked --release -p punctual-daemon --test tcp_leaks -- --nocapture

orb-wire: setup ## capture what the ORB and omniORB send each other; tshark must find no malformed frame (as root; installs tshark)
	scripts/orb-wire

orb-bench: setup ## call objects through the ORB and through omniORB in turns on one CPU; fails where ours takes longer
	$(CARGO) bench --locked -p punctual-orb --bench omniorb -- $(ORB_BENCH)

orb-clients: setup ## 10,000 clients call one server at once: no request may be lost, and memory stays within its bound
	PUNCTUAL_ORB_CLIENTS=10000 $(CARGO) test --locked --release -p punctual-orb --test memory many_clients -- --nocapture

idl-corpus: setup ## read the IDL files of TAO/tests/IDL_Test in DIR, a checkout of DOCGroup/ACE_TAO, and of omniorb-idl, in time
	PUNCTUAL_TEST_WALL_CLOCK=1 PUNCTUAL_ACE_TAO=$(abspath $(DIR)) $(CARGO) test --locked --release -p punctual-idl --test corpora -- --nocapture

packetdrill: setup ## run packetdrill's scripts of the folder DIR over the TCP stack in virtual time; prints which pass
	PUNCTUAL_PACKETDRILL=$(DIR) $(CARGO) test --locked -p punctual-tcp --test packetdrill -- --nocapture

sanitize: setup ## run the unsafe code under address and thread sanitizers and Miri
	scripts/sanitize

coverage: setup ## measure which lines of analysis and proto tests and corpora reach, and which branches they decide both ways
	scripts/coverage

branches: setup ## measure which branches of analysis and proto each generator decides both ways, one way or never; writes target/branches/report.md
	scripts/branches $(GENERATORS)

soak: setup ## run real daemons with faults of SOAK_SEED for SOAK_SECONDS (as root; steps the wall clock): nothing may grow or be late
	PUNCTUAL_TEST_WALL_CLOCK=1 PUNCTUAL_SOAK_SECONDS=$(SOAK_SECONDS) PUNCTUAL_SOAK_SEED=$(SOAK_SEED) \
		$(CARGO) test --locked --release -p punctual-daemon --test soak -- --nocapture

attack: setup ## run each hostile program and neighbour of docs/SECURITY.md for ATTACK_SECONDS, and its control (as root)
	PUNCTUAL_ATTACK_SECONDS=$(ATTACK_SECONDS) $(CARGO) test --locked --release -p punctual-daemon --test attack -- --nocapture

trials: setup ## run attacks at daemons from which the defence was taken away: they must do harm there (as root)
	$(CARGO) test --locked --release -p punctual-daemon --features trials --test attack -- without --nocapture
	$(CARGO) test --locked --release -p punctual-cli --features trials --test trials -- --nocapture

bench: build ## run the micro-benchmarks of docs/PERFORMANCE.md
	$(CARGO) bench --locked --workspace

fmt: ## format everything
	scripts/format

lint: setup ## check format, clippy, links in the documentation of the code, layering, licences and sources
	scripts/format --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p punctual-sim --features mutations --all-targets -- -D warnings
	$(CARGO) clippy --locked -p punctual-analysis --features mutations --all-targets -- -D warnings
	$(CARGO) clippy --locked -p punctual-daemon -p punctual-cli --features punctual-daemon/trials,punctual-cli/trials --all-targets -- -D warnings
	$(CARGO) clippy --locked -p punctual --features tokio --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --lib --bins -- -D warnings -D clippy::too_many_lines
	RUSTDOCFLAGS="-D rustdoc::broken_intra_doc_links" $(CARGO) doc --locked --no-deps --workspace
	$(CARGO) test --locked -p punctual-cli --test layering
	scripts/check-deny

clean: ## remove everything that was built
	$(CARGO) clean
