"""Reports: `model` builds and reads report.json, `report.schema.json` describes it, `render` draws the matrix."""
