#define TRACEPOINT_CREATE_PROBES
#include "loaded.h"
