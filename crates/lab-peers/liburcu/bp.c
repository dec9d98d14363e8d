#define _LGPL_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-bp.h>

#define AW_FLAVOR aw_urcu_bp
#include "flavor.h"
