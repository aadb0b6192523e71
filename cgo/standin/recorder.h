#ifndef GOVERBS_RECORDER_H
#define GOVERBS_RECORDER_H

#include <stdint.h>
#include "../driver.h"

/* Puts functions into the table that only write down how they were called. */
void recorder_install(uintptr_t table);

/* Gives the table back as it was. */
void recorder_remove(uintptr_t table);

/* A context without anything in it, which only the functions above see. */
uintptr_t recorder_context(void);

/* What was written down since the last call. */
const char *recorder_take(void);

#endif
