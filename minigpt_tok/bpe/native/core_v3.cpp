// The core for level 3 of the x86-64 instruction set.
#define MINIGPT_MODULE _core_v3
#include "bindings.hpp"
