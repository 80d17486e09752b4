#define TRACEPOINT_CREATE_PROBES
#include "shapes.h"
