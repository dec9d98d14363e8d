/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * liburcu's <urcu/urcu-signal.h>, implemented by afterwork: urcu_signal_…. With URCU_API_MAP, also
 * the common names.
 */
#include "urcu-flavors.h"

#ifdef URCU_API_MAP
#ifndef AFTERWORK_URCU_FLAVOR
#define AFTERWORK_URCU_FLAVOR signal
#endif
#include "urcu-map.h"
#endif
