/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * liburcu's <urcu/urcu-memb.h>, implemented by afterwork: urcu_memb_…. With URCU_API_MAP, also the
 * common names.
 */
#include "urcu-flavors.h"

#ifdef URCU_API_MAP
#ifndef AFTERWORK_URCU_FLAVOR
#define AFTERWORK_URCU_FLAVOR memb
#endif
#include "urcu-map.h"
#endif
