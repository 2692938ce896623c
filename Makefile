# dpack: `make demo` shows what it does on the real libraries, `make test` is the whole gate.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CUDA ?= 12

# The set of libraries that the demo and the real-library tests use: about 1.4 GB to download, once.
REQUIREMENTS_12 := nvidia-cudnn-cu12==9.10.2.21 nvidia-cublas-cu12==12.9.1.4 \
	nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvrtc-cu12==12.9.86
HEADERS_12 := nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-cccl-cu12==12.9.27
REQUIREMENTS_13 := nvidia-cudnn-cu13==9.28.0.42 nvidia-cublas==13.10.0.20 \
	nvidia-cuda-runtime==13.5.37 nvidia-cuda-nvrtc==13.5.37
HEADERS_13 := nvidia-cuda-crt==13.5.37 nvidia-cuda-cccl==13.3.5.0.6
REQUIREMENTS := $(REQUIREMENTS_$(CUDA))

.PHONY: help demo test unit lint format bench bench-size clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(BIN)/dpack: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(BIN)/dpack ## Fetch CUDA 12 (or CUDA=13), build the CNN example, bundle it and show the sizes
	@echo 'Fetching the CUDA $(CUDA) libraries and headers: about 1.4 GB, once.'
	$(BIN)/dpack fetch --sdk demo/cuda$(CUDA) $(REQUIREMENTS) $(HEADERS_$(CUDA))
	$(MAKE) --no-print-directory -C examples mnist CUDA=$(CURDIR)/demo/cuda$(CUDA)
	$(BIN)/dpack bundle examples/mnist/build/mnist --model cnn --force --output demo/mnist.tar.zst \
		$(REQUIREMENTS:%=--require %)

test: lint ## The whole gate: lint, unit tests, and the tests on the real libraries
	@echo 'The tests on the real libraries fetch about 1.4 GB, once (DPACK_SETS=all: about 5 GB).'
	$(BIN)/python -m pytest -n auto --dist loadfile

unit: $(BIN)/dpack ## The tests that need no download and run no whole program: for every save
	$(BIN)/python -m pytest -n auto -q -m 'not real and not whole'

lint: $(BIN)/dpack ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(BIN)/dpack ## Let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BIN)/dpack ## Time and memory of dpack beside ldd, libtree, lddtree, tar+zstd, podman and cp
	$(BIN)/python tests/bench/bench.py

bench-size: $(BIN)/dpack ## How small a CNN gets, and what the rest is (TORCH=1: libtorch_cuda too, 540 MB to fetch)
	$(BIN)/python tests/bench/size.py $(if $(TORCH),--torch)

clean: ## Remove what was built here; the package cache stays
	rm -rf demo build dist .mypy_cache .ruff_cache .pytest_cache examples/*/build
