PY=/work/main/.venv/bin/python
cd /work/native/minigpt_tok/bpe/native && g++ -O3 ${ARCH:--march=x86-64-v4} -std=c++20 -shared -fPIC -Wall -Wextra -fvisibility=hidden $($PY -m pybind11 --includes) module.cpp -o /work/native/minigpt_tok/bpe/_core$($PY -c "import sysconfig;print(sysconfig.get_config_var('EXT_SUFFIX'))")
