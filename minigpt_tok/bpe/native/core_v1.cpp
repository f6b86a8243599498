// The core for level 1 of the x86-64 instruction set, and for all other processors.
#define MINIGPT_MODULE _core_v1
#include "bindings.hpp"
