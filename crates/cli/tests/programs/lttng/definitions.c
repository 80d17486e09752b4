/* What the calls of program.c need. */
#define TRACEPOINT_DEFINE
#define CLASSES_WRONG long
#include "classes.h"
#include "shapes.h"
