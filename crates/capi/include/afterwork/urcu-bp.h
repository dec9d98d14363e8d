/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * liburcu's <urcu/urcu-bp.h>, implemented by afterwork: urcu_bp_…. With URCU_API_MAP, also the
 * common names.
 */
#include "urcu-flavors.h"

#ifdef URCU_API_MAP
#ifndef AFTERWORK_URCU_FLAVOR
#define AFTERWORK_URCU_FLAVOR bp
#endif
#include "urcu-map.h"
#endif
