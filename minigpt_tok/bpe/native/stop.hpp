// How work that takes long is stopped: it asks now and then whether to go on.
#pragma once

#include <functional>

namespace minigpt {

using GoOn = std::function<bool()>;  // false: stop

struct Stopped {};  // thrown by work that was told to stop in its midst

// For places from which there is no short way back; `go_on` may be null.
inline void ask(const GoOn* go_on) {
    if (go_on && !(*go_on)()) throw Stopped();
}

}  // namespace minigpt
