/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* liburcu's <urcu/urcu-mb.h> over afterwork: urcu_mb_…, and the common names with URCU_API_MAP. */
#include "urcu-flavors.h"

#ifdef URCU_API_MAP
#ifndef AFTERWORK_URCU_FLAVOR
#define AFTERWORK_URCU_FLAVOR mb
#endif
#include "urcu-map.h"
#endif
