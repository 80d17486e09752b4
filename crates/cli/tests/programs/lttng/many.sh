#!/bin/sh
# many.sh COUNT: a provider with so many events, and a program that calls the last one.
echo '#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER many
#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "many.h"
#if !defined(MANY_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define MANY_H
#include <lttng/tracepoint.h>' > many.h
seq "$1" | sed 's/.*/TRACEPOINT_EVENT(many, event_&, TP_ARGS(int, n), TP_FIELDS(ctf_integer(int, n, n)))/' >> many.h
echo '#endif
#include <lttng/tracepoint-event.h>' >> many.h
echo "#define TRACEPOINT_CREATE_PROBES
#define TRACEPOINT_DEFINE
#include \"many.h\"
int main(void)
{
    tracepoint(many, event_$1, 1);
    return 0;
}" > many.c
