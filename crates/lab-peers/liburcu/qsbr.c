#define _LGPL_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-qsbr.h>

#define AW_FLAVOR aw_urcu_qsbr
#include "flavor.h"
