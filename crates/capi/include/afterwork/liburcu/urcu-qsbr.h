/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef URCU_API_MAP
#define URCU_API_MAP
#endif
#include <afterwork/urcu-qsbr.h>
