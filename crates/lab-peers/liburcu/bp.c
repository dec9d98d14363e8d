#define _LGPL_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-bp.h>

#define AW(name) aw_urcu_bp_##name
#include "flavor.h"
