/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * liburcu's <urcu/urcu-bp.h> over the library afterwork: urcu_bp_…, and the common names if
 * URCU_API_MAP is defined.
 */
#include "urcu-flavors.h"

#ifdef URCU_API_MAP
#ifndef AFTERWORK_URCU_FLAVOR
#define AFTERWORK_URCU_FLAVOR bp
#endif
#include "urcu-map.h"
#endif
