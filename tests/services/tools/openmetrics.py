# Reads OpenMetrics text with the parser of the format's own Python library; prints each family's name, type and unit.
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

for family in text_string_to_metric_families(sys.stdin.read()):
    print(family.name, family.type, family.unit or "-")
