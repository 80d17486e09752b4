#define TRACEPOINT_CREATE_PROBES
#include "classes.h"
