#define _LGPL_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-mb.h>

#define AW(name) aw_urcu_mb_##name
#include "flavor.h"
