#define _LGPL_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-mb.h>

#define AW_FLAVOR aw_urcu_mb
#include "flavor.h"
