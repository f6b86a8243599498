// The core for level 4 of the x86-64 instruction set.
#define MINIGPT_MODULE _core_v4
#include "bindings.hpp"
