#define _LGPL_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-qsbr.h>

#define AW(name) aw_urcu_qsbr_##name
#include "flavor.h"
