// built from web/
