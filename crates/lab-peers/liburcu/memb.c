#define _LGPL_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-memb.h>

#define AW(name) aw_urcu_memb_##name
#include "flavor.h"
