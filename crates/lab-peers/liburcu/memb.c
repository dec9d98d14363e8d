#define _LGPL_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-memb.h>

#define AW_FLAVOR aw_urcu_memb
#include "flavor.h"
