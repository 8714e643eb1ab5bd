"""Operations on stores: list, add, rename, remove, check and move stores, and migrate them to other stores."""
